"""Distillation: a small rule learns to hand out the targets of a large one."""
