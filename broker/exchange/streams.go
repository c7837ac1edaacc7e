package exchange

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// streamsOfOne is the number of requests that share a connection before another connection may be opened. An API
// server accepts 100 (--http2-max-streams-per-connection), but Go's client still counts a request for a moment after
// its answer was read.
const streamsOfOne = 90

// streams lets a request that may need another connection go alone. When all connections are full, or there is none,
// Go's client opens a connection for every request that comes until there is another one: many at once, of which it
// closes all but one.
type streams struct {
	next  http.RoundTripper
	alone chan struct{} // holds the request that may need another connection

	mu     sync.Mutex
	active int              // requests under way
	on     map[net.Conn]int // the number of them on each connection that carries any
}

func newStreams(next http.RoundTripper) *streams {
	return &streams{next: next, alone: make(chan struct{}, 1), on: map[net.Conn]int{}}
}

// WrappedRoundTripper returns what makes the requests.
func (s *streams) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip implements http.RoundTripper.
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	others := func() {} // lets the next request go
	if !s.begin(false) {
		select {
		case <-r.Context().Done():
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, context.Cause(r.Context())
		case s.alone <- struct{}{}:
		}
		others = sync.OnceFunc(func() { <-s.alone })
		defer others()
		if s.begin(false) { // there is another connection by now
			others()
		} else {
			s.begin(true)
		}
	}
	b := &stream{streams: s, ctx: r.Context()}
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		b.use(i.Conn)
		others() // the answer may take long
	}}
	response, err := s.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		b.end(err)
		return response, err
	}
	b.ReadCloser, response.Body = response.Body, b
	return response, nil
}

// begin counts a request if it fits into the connections that are known, or if it goes alone.
func (s *streams) begin(alone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !alone && s.active >= streamsOfOne*len(s.on) {
		return false
	}
	s.active++
	return true
}

// release removes requests from a connection. s.mu is held.
func (s *streams) release(c net.Conn, requests int) {
	if s.on[c] -= requests; s.on[c] <= 0 {
		delete(s.on, c)
	}
}

// stream is a request, and the answer to it.
type stream struct {
	io.ReadCloser
	streams *streams
	ctx     context.Context // of the request
	conn    net.Conn        // nil before it has one
	ended   bool
}

// use notes the connection of the request. It is called again if the client repeats the request on another one.
func (b *stream) use(c net.Conn) {
	b.streams.mu.Lock()
	defer b.streams.mu.Unlock()
	if b.ended {
		return
	}
	b.streams.release(b.conn, 1)
	b.conn = c
	b.streams.on[c]++
}

// end notes that the answer has ended. After an error the connection may be lost, with all its requests, unless the
// caller has ended the request.
func (b *stream) end(err error) {
	b.streams.mu.Lock()
	defer b.streams.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	b.streams.active--
	requests := 1
	if err != nil && err != io.EOF && b.ctx.Err() == nil {
		requests = b.streams.on[b.conn]
	}
	b.streams.release(b.conn, requests)
}

// Read implements io.Reader.
func (b *stream) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *stream) Close() error {
	b.end(nil)
	return b.ReadCloser.Close()
}
