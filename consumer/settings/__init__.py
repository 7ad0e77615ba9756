"""The settings: their values, where they come from, and the rules that they obey."""
