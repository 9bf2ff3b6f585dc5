//! Errors that print as a sentence wherever they are printed.

/// Makes the `Debug` of error types their `Display`: a `main` that returns an error, and `unwrap`, print `Debug`.
///
/// ```
/// #[derive(thiserror::Error)]
/// #[error("no device {name}")]
/// struct NoDevice { name: &'static str }
///
/// ucs::debug_as_display!(NoDevice);
/// assert_eq!(format!("{:?}", NoDevice { name: "eth7" }), "no device eth7");
/// ```
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}
