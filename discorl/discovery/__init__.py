"""Discovery: meta-gradients of a rule through the lives of a population of agents."""
