package exchange

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// streamsOfOne is how many requests an API server accepts at a time on a connection.
const streamsOfOne = 100

// streams lets a request that needs another connection go alone. When a connection is full, or there is none, Go's client
// opens a connection for every request that comes until there is another one: many at once, of which it closes all
// but one.
type streams struct {
	next  http.RoundTripper
	alone chan struct{} // holds the request that may need another connection

	mu           sync.Mutex
	active, room int // requests under way, and how many the connections take that are known
}

func newStreams(next http.RoundTripper) *streams {
	return &streams{next: next, alone: make(chan struct{}, 1)}
}

// WrappedRoundTripper returns what makes the requests.
func (s *streams) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip implements http.RoundTripper.
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if !s.fits() {
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case s.alone <- struct{}{}:
		}
		if s.fits() { // there is one by now
			<-s.alone
		} else {
			defer func() { <-s.alone }()
			s.add(1, 0)
			response, err := s.next.RoundTrip(r)
			if err == nil {
				s.add(0, streamsOfOne)
			}
			return s.follow(r, response, err)
		}
	}
	response, err := s.next.RoundTrip(r)
	return s.follow(r, response, err)
}

// fits counts a request if there is a connection for it.
func (s *streams) fits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active >= s.room {
		return false
	}
	s.active++
	return true
}

func (s *streams) add(active, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active, s.room = s.active+active, s.room+room
}

// lost notes that a connection may have ended: the next requests go alone until they have found out how many there are.
func (s *streams) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = 0
}

// follow counts a request until its answer was read.
func (s *streams) follow(r *http.Request, response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		s.add(-1, 0)
		if r.Context().Err() == nil {
			s.lost()
		}
		return response, err
	}
	response.Body = &stream{ReadCloser: response.Body, of: s, request: r.Context(), end: sync.OnceFunc(func() { s.add(-1, 0) })}
	return response, nil
}

// stream is the answer to a request.
type stream struct {
	io.ReadCloser
	of      *streams
	request context.Context
	end     func()
}

// Read implements io.Reader.
func (b *stream) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
		if err != io.EOF && b.request.Err() == nil {
			b.of.lost()
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *stream) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
