"""``python -m lvq_kafka`` is ``lvq``."""

from lvq_kafka.cli import main

if __name__ == "__main__":
    main()
