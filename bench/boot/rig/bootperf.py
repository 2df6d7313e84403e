"""Results in the shape that ChromeOS's boot performance tests write.

    {"seconds_kernel_to_login": {"summary": {"units": "s", "improvement_direction": "down",
                                             "type": "list_of_scalar_values",
                                             "values": [1.5, 1.4]}}}
"""


def chart(figures):
    """The document; `figures` are lists of seconds by name and variant."""
    return {name: {variant: {"units": "s", "improvement_direction": "down",
                             "type": "list_of_scalar_values",
                             "values": [round(value, 6) for value in values]}
                   for variant, values in variants.items()}
            for name, variants in figures.items()}
