//! The traits of `futures-io` and tokio, for the streams of both flavours.

#[cfg(feature = "futures-io")]
mod for_futures_io {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use crate::flavour::{Flavour, Stream};

    impl<C: Flavour> futures_io::AsyncRead for Stream<C> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Stream::poll_read(&mut self, context, buffer).map_err(io::Error::from)
        }
    }

    impl<C: Flavour> futures_io::AsyncBufRead for Stream<C> {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.get_mut().poll_fill(context).map_err(io::Error::from)
        }

        fn consume(mut self: Pin<&mut Self>, count: usize) {
            Stream::consume(&mut self, count);
        }
    }

    impl<C: Flavour> futures_io::AsyncWrite for Stream<C> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Stream::poll_write(&mut self, context, bytes).map_err(io::Error::from)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_flush(&mut self, context).map_err(io::Error::from)
        }

        fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_shutdown(&mut self, context).map_err(io::Error::from)
        }
    }
}

#[cfg(feature = "tokio")]
mod for_tokio {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::ReadBuf;

    use crate::flavour::{Flavour, Stream};

    impl<C: Flavour> tokio::io::AsyncRead for Stream<C> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let rest = ready!(self.poll_fill(context))?;
            let count = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..count]);
            self.consume(count);
            Poll::Ready(Ok(()))
        }
    }

    impl<C: Flavour> tokio::io::AsyncBufRead for Stream<C> {
        fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.get_mut().poll_fill(context).map_err(io::Error::from)
        }

        fn consume(mut self: Pin<&mut Self>, count: usize) {
            Stream::consume(&mut self, count);
        }
    }

    impl<C: Flavour> tokio::io::AsyncWrite for Stream<C> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Stream::poll_write(&mut self, context, bytes).map_err(io::Error::from)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_flush(&mut self, context).map_err(io::Error::from)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Stream::poll_shutdown(&mut self, context).map_err(io::Error::from)
        }
    }
}
