"""Modules of several layers."""
