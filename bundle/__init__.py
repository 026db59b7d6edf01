"""The contract between training and service: what is written once and verified before it is served."""
