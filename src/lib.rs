//! KDA
