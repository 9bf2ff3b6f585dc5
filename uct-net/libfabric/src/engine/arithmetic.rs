//! The arithmetic of atomic operations.

use super::{Buffer, DataType, Errno, Operation};

/// What elements are updated with.
pub(super) struct Arguments<'a> {
    pub(super) operation: Operation,
    pub(super) data_type: DataType,
    /// As many as there are elements, or none.
    pub(super) operands: &'a [u8],
    /// The same.
    pub(super) compare: &'a [u8],
}

/// Updates all elements of a buffer, one after the other; the former elements go to `former`.
///
/// # Errors
/// The operation is not offered for elements of this type.
pub(super) fn update(
    buffer: Buffer,
    arguments: &Arguments<'_>,
    former: Option<&mut Vec<u8>>,
) -> Result<(), Errno> {
    match arguments.data_type {
        DataType::Int32 => each::<i32, 4>(buffer, arguments, former),
        DataType::Uint32 => each::<u32, 4>(buffer, arguments, former),
        DataType::Int64 => each::<i64, 8>(buffer, arguments, former),
        DataType::Uint64 => each::<u64, 8>(buffer, arguments, former),
        DataType::Float => each::<f32, 4>(buffer, arguments, former),
        DataType::Double => each::<f64, 8>(buffer, arguments, former),
    }
}

/// An element.
trait Number<const SIZE: usize>: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn from_bytes(bytes: [u8; SIZE]) -> Self;
    fn to_bytes(self) -> [u8; SIZE];
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// The result of an operation on bits, with an operand and what is compared; `None` if there is none for this type.
    fn bits(self, operation: Operation, operand: Self, compare: Self) -> Option<Self>;
}

macro_rules! integer {
    ($type:ty, $size:literal) => {
        impl Number<$size> for $type {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            fn from_bytes(bytes: [u8; $size]) -> Self {
                <$type>::from_ne_bytes(bytes)
            }
            fn to_bytes(self) -> [u8; $size] {
                self.to_ne_bytes()
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn bits(self, operation: Operation, operand: Self, compare: Self) -> Option<Self> {
                match operation {
                    Operation::BitOr => Some(self | operand),
                    Operation::BitAnd => Some(self & operand),
                    Operation::BitXor => Some(self ^ operand),
                    Operation::MaskedSwap => Some(operand & compare | self & !compare),
                    _ => None,
                }
            }
        }
    };
}

macro_rules! float {
    ($type:ty, $size:literal) => {
        impl Number<$size> for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn from_bytes(bytes: [u8; $size]) -> Self {
                <$type>::from_ne_bytes(bytes)
            }
            fn to_bytes(self) -> [u8; $size] {
                self.to_ne_bytes()
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn bits(self, _operation: Operation, _operand: Self, _compare: Self) -> Option<Self> {
                None
            }
        }
    };
}

integer!(i32, 4);
integer!(u32, 4);
integer!(i64, 8);
integer!(u64, 8);
float!(f32, 4);
float!(f64, 8);

fn each<N: Number<SIZE>, const SIZE: usize>(
    buffer: Buffer,
    arguments: &Arguments<'_>,
    mut former: Option<&mut Vec<u8>>,
) -> Result<(), Errno> {
    let argument = |all: &[u8], number: usize| -> N {
        all.as_chunks::<SIZE>().0.get(number).map_or(N::ZERO, |bytes| N::from_bytes(*bytes))
    };
    for number in 0..buffer.len() / SIZE {
        let place = buffer.part(number * SIZE, SIZE);
        let bytes: [u8; SIZE] = place.read();
        let value = N::from_bytes(bytes);
        let operand = argument(arguments.operands, number);
        let compare = argument(arguments.compare, number);
        let updated = result(arguments.operation, value, operand, compare).ok_or(Errno::NOT_SUPPORTED)?;
        place.write(&updated.to_bytes());
        if let Some(former) = &mut former {
            former.extend_from_slice(&bytes);
        }
    }
    Ok(())
}

fn result<N: Number<SIZE>, const SIZE: usize>(
    operation: Operation,
    value: N,
    operand: N,
    compare: N,
) -> Option<N> {
    let truth = |is_true: bool| if is_true { N::ONE } else { N::ZERO };
    let (a, b) = (value != N::ZERO, operand != N::ZERO);
    let swap_if = |is_true: bool| if is_true { operand } else { value };
    Some(match operation {
        Operation::Min => swap_if(operand < value),
        Operation::Max => swap_if(operand > value),
        Operation::Sum => value.sum(operand),
        Operation::Product => value.product(operand),
        Operation::LogicalOr => truth(a || b),
        Operation::LogicalAnd => truth(a && b),
        Operation::LogicalXor => truth(a != b),
        Operation::Read => value,
        Operation::Write => operand,
        Operation::CompareSwap => swap_if(compare == value),
        Operation::CompareSwapNotEqual => swap_if(compare != value),
        Operation::CompareSwapLessEqual => swap_if(compare <= value),
        Operation::CompareSwapLess => swap_if(compare < value),
        Operation::CompareSwapGreaterEqual => swap_if(compare >= value),
        Operation::CompareSwapGreater => swap_if(compare > value),
        Operation::BitOr | Operation::BitAnd | Operation::BitXor | Operation::MaskedSwap => {
            return value.bits(operation, operand, compare);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<N: Number<SIZE>, const SIZE: usize>(
        data_type: DataType,
        operation: Operation,
        [value, operand, compare]: [N; 3],
    ) -> Result<(N, N), Errno> {
        let mut bytes = value.to_bytes();
        // SAFETY: the bytes outlive the buffer, and nothing else uses them meanwhile.
        #[expect(unsafe_code, reason = "a buffer of the program")]
        let buffer = unsafe { Buffer::new(bytes.as_mut_ptr(), SIZE) };
        let mut former = Vec::new();
        let (operands, compare) = (operand.to_bytes(), compare.to_bytes());
        let arguments = Arguments { operation, data_type, operands: &operands, compare: &compare };
        update(buffer, &arguments, Some(&mut former))?;
        Ok((N::from_bytes(bytes), N::from_bytes(former.try_into().unwrap())))
    }

    #[test]
    fn each_operation_has_its_result_and_returns_the_former_value() {
        use Operation::*;
        // Operation, value, operand, result.
        let cases = [
            (Min, 5, -5, -5),
            (Min, -5, 5, -5),
            (Max, -5, 7, 7),
            (Max, 7, -5, 7),
            (Sum, -5, -3, -8),
            (Product, -5, 7, -35),
            (LogicalOr, 0, 4, 1),
            (LogicalAnd, 5, 0, 0),
            (LogicalXor, 5, 4, 0),
            (BitOr, 5, 3, 7),
            (BitAnd, 5, 3, 1),
            (BitXor, 5, 3, 6),
            (Read, 5, 3, 5),
            (Write, 5, 3, 3),
        ];
        for (operation, value, operand, expected) in cases {
            let outcome = one::<i64, 8>(DataType::Int64, operation, [value, operand, 0]);
            assert_eq!(outcome, Ok((expected, value)), "{operation:?}");
        }
        let swaps = [
            (CompareSwap, [false, true, false]),
            (CompareSwapNotEqual, [true, false, true]),
            (CompareSwapLessEqual, [true, true, false]),
            (CompareSwapLess, [true, false, false]),
            (CompareSwapGreaterEqual, [false, true, true]),
            (CompareSwapGreater, [false, false, true]),
        ];
        for (operation, swapped) in swaps {
            for (compare, is_swapped) in [4.0, 5.0, 6.0].into_iter().zip(swapped) {
                let outcome = one::<f64, 8>(DataType::Double, operation, [5.0, 9.0, compare]);
                assert_eq!(outcome, Ok((if is_swapped { 9.0 } else { 5.0 }, 5.0)), "{operation:?} {compare}");
            }
        }
        let masked = one::<u32, 4>(DataType::Uint32, MaskedSwap, [0xff00, 0x1234, 0x0ff0]);
        assert_eq!(masked, Ok((0xf230, 0xff00)));
        let sum = one::<u32, 4>(DataType::Uint32, Sum, [u32::MAX, 2, 0]);
        assert_eq!(sum, Ok((1, u32::MAX)));
    }

    #[test]
    fn bits_of_a_float_are_refused() {
        let outcome = one::<f32, 4>(DataType::Float, Operation::BitOr, [1.0, 2.0, 0.0]);
        assert_eq!(outcome, Err(Errno::NOT_SUPPORTED));
    }
}
