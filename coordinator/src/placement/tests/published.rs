//! Properties that papers state, measured.
