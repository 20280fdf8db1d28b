//! One declaration gives a record its struct, its codec and its table in FORMAT.

/// One row of a record's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Byte offset from the start of the record.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Its type: `u64`, or `bytes`.
    pub kind: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Declares a record of fixed size. Fields are stored in the order of declaration without gaps.
macro_rules! record {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident ($title:literal, $size:literal bytes) {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes on disk.
            pub const SIZE: usize = $size;
            /// Name in FORMAT and in messages.
            pub const TITLE: &'static str = $title;

            /// The bytes on disk.
            pub fn bytes(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                let rest = &mut bytes[..];
                $(
                    let (place, rest) = rest.split_at_mut(<$type as $crate::codec::Fixed>::SIZE);
                    $crate::codec::Fixed::put(&self.$field, place);
                )*
                let _ = rest;
                bytes
            }

            /// Appends the record to `out`.
            pub fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.bytes());
            }

            /// Takes a record from the front of `reader`, without judging its values.
            pub fn read(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::Malformed> {
                Ok($name { $($field: $crate::codec::Fixed::read(reader)?,)* })
            }

            /// The record that `bytes` are, no more and no less, without judging its values.
            pub fn exactly(bytes: &[u8]) -> Result<Self, $crate::Malformed> {
                let mut reader = $crate::codec::Reader::new($title, bytes);
                let record = Self::read(&mut reader)?;
                reader.finish()?;
                Ok(record)
            }

            /// The error that it breaks the rule `why`.
            pub fn fail<T>(why: impl Into<String>) -> Result<T, $crate::Malformed> {
                Err($crate::Malformed::new($title, why))
            }

            /// The table of its fields.
            pub fn fields() -> Vec<$crate::Field> {
                let mut offset = 0;
                let mut fields = Vec::new();
                $(
                    let size = <$type as $crate::codec::Fixed>::SIZE;
                    fields.push($crate::Field {
                        offset,
                        size,
                        kind: <$type as $crate::codec::Fixed>::NAME,
                        name: stringify!($field),
                        meaning: concat!($($field_doc,)*).trim_ascii(),
                    });
                    offset += size;
                )*
                let _ = offset;
                fields
            }
        }

        const _: () = assert!(
            0 $(+ <$type as $crate::codec::Fixed>::SIZE)* == $size,
            concat!("the fields of ", $title, " do not add up to its size")
        );
    };
}
