"""`dead-letters`: lists, shows, captures and redrives dead letters."""
