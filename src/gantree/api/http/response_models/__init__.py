"""The values that answers hold, as models for the OpenAPI; they describe `views` and validate nothing.

Fields may be added, none removed. Times are seconds since 1970; null where the moment has not come.
"""
