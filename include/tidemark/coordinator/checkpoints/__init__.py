"""The life of one checkpoint: trigger, begin, seal or revoke, publish or abort; then its reports and deliveries."""
