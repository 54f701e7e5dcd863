"""What users of PopART choose: enumerations, settings, options of sessions, patterns."""
