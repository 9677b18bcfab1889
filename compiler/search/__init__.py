"""How to split a loss over machines: which splits there are, what each would take, and the best of them."""
