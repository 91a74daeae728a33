"""Who made a record: signatures over statements, and the settings that say whose are believed."""
