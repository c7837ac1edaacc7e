package exchange

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// streams lets one request at a time look for a connection, which takes no time if one has room.
// When none has room, Go's client opens a connection for every request that comes until there is
// another one: many at once, of which it closes all but one.
type streams struct {
	next  http.RoundTripper
	turns chan struct{} // holds the request that has no connection yet
}

func newStreams(next http.RoundTripper) *streams {
	return &streams{next: next, turns: make(chan struct{}, 1)}
}

// WrappedRoundTripper returns what makes the requests.
func (s *streams) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip implements http.RoundTripper.
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, context.Cause(r.Context())
	case s.turns <- struct{}{}:
	}
	others := sync.OnceFunc(func() { <-s.turns }) // lets the next request go: the answer may take long
	defer others()
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { others() }}
	return s.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}
