"""The verbs: one use case a module. What a verb takes and raises is said at its method of `api.Cache`."""
