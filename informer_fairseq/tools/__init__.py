"""``informer-fairseq``: what follows training, one subcommand a job; each a module of this package."""
