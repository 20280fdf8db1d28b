//! Ways for requests to arrive and for answers to leave.
//!
//! A transport decodes a request, counts it, calls the matching method of the
//! [`crate::server::Server`] and sends the answer. It decides on which thread
//! that happens: what waits for the device never runs on the last thread that
//! could read the next request.

mod convert;
pub(crate) mod fuser;
pub(crate) mod work;
