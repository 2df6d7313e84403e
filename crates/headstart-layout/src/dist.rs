//! The units that lay out disks, as packages install them.

/// The units by name.
pub const UNITS: [(&str, &str); 3] = [
    ("headstart-layout.service", include_str!("units/headstart-layout.service")),
    ("headstart-layout.timer", include_str!("units/headstart-layout.timer")),
    ("headstart-layout-shutdown.service", include_str!("units/headstart-layout-shutdown.service")),
];
