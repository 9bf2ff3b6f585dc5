//! The traits of `futures-io` and tokio, for the streams of both flavours.

#[cfg(feature = "futures-io")]
macro_rules! futures_io_traits {
    ($stream:ty) => {
        impl futures_io::AsyncRead for $stream {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                <$stream>::poll_read(&mut self, context, buffer).map_err(io::Error::from)
            }
        }

        impl futures_io::AsyncBufRead for $stream {
            fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                self.get_mut().poll_fill(context).map_err(io::Error::from)
            }

            fn consume(mut self: Pin<&mut Self>, count: usize) {
                <$stream>::consume(&mut self, count);
            }
        }

        impl futures_io::AsyncWrite for $stream {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$stream>::poll_write(&mut self, context, bytes).map_err(io::Error::from)
            }

            fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_flush(&mut self, context).map_err(io::Error::from)
            }

            fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_shutdown(&mut self, context).map_err(io::Error::from)
            }
        }
    };
}

#[cfg(feature = "tokio")]
macro_rules! tokio_traits {
    ($stream:ty) => {
        impl tokio::io::AsyncRead for $stream {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let rest = std::task::ready!(self.poll_fill(context))?;
                let count = rest.len().min(buffer.remaining());
                buffer.put_slice(&rest[..count]);
                self.consume(count);
                Poll::Ready(Ok(()))
            }
        }

        impl tokio::io::AsyncBufRead for $stream {
            fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                self.get_mut().poll_fill(context).map_err(io::Error::from)
            }

            fn consume(mut self: Pin<&mut Self>, count: usize) {
                <$stream>::consume(&mut self, count);
            }
        }

        impl tokio::io::AsyncWrite for $stream {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                <$stream>::poll_write(&mut self, context, bytes).map_err(io::Error::from)
            }

            fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_flush(&mut self, context).map_err(io::Error::from)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                <$stream>::poll_shutdown(&mut self, context).map_err(io::Error::from)
            }
        }
    };
}

#[cfg(feature = "futures-io")]
mod for_futures_io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    futures_io_traits!(crate::Stream);
    futures_io_traits!(crate::local::Stream);
}

#[cfg(feature = "tokio")]
mod for_tokio {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    tokio_traits!(crate::Stream);
    tokio_traits!(crate::local::Stream);
}
