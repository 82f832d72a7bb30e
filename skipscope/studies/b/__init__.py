"""Li, Jiao, Han, Weissman: Demystifying ResNet."""
