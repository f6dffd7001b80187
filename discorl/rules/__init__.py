"""Update rules: what a rule must answer, the rules there are, and the library of named ones."""
