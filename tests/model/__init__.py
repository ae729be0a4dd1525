"""A model checker over the real cores: every order, loss and outcome of small sizes, breadth first."""
