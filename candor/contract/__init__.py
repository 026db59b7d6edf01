"""The contract: every request and answer of the service, described once, in one module for each subject.

The service answers with these types and generates its OpenAPI document from them; the client reads them.
"""
