"""Makes ``python -m lvq_kafka`` the same as ``lvq``."""

from lvq_kafka.cli import main

if __name__ == "__main__":
    main()
