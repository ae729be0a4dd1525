"""Long work by hand that is under way on this machine, or was interrupted."""
