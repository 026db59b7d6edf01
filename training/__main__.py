"""`python -m training` is `candor-train`: what `torchrun -m` needs."""

from training.cli import main

main()
