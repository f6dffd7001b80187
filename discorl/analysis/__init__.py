"""Looking inside a rule: what it responds to, what its predictions know, what it relies on."""
