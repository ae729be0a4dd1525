"""The bookie: answers, never asks."""
