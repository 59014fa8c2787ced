"""Channel mixers: what follows the token mixer in an encoder layer."""
