package exchange

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	accepted = 100 // requests that an API server accepts at a time on a connection
	late     = 20  // requests that have ended, but that the client still counts
)

// pool is Go's client of an API server: a request for which there is no room opens a connection of its own, and a
// request takes room for a while after its answer was read.
type pool struct {
	sync.Mutex
	ended       []*connection // of requests that take room still
	connections []*connection
	dials       int
	down        bool
}

type connection struct {
	net.Conn
	active int
}

func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	c := p.free()
	if c == nil {
		time.Sleep(5 * time.Millisecond)
		p.Lock()
		p.dials++
		p.Unlock()
		if c = p.free(); c == nil { // else another one is there by now
			c = &connection{active: 1}
			p.Lock()
			p.connections = append(p.connections, c)
			p.Unlock()
		}
	}
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: c})
	if p.down {
		p.release(c)
		return nil, errors.New("down")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: &answer{Reader: strings.NewReader("x"), on: c, pool: p}}, nil
}

// free returns a connection that has room, and takes it; nil if there is none.
func (p *pool) free() *connection {
	p.Lock()
	defer p.Unlock()
	for _, c := range p.connections {
		if c.active < accepted {
			c.active++
			return c
		}
	}
	return nil
}

func (p *pool) release(c *connection) {
	p.Lock()
	defer p.Unlock()
	if p.ended = append(p.ended, c); len(p.ended) > late {
		p.ended[0].active--
		p.ended = p.ended[1:]
	}
}

// answer is the answer to a request.
type answer struct {
	io.Reader
	on   *connection
	pool *pool
}

func (a *answer) Read(p []byte) (int, error) {
	if a.pool.down {
		return 0, io.ErrUnexpectedEOF
	}
	return a.Reader.Read(p)
}

func (a *answer) Close() error {
	a.pool.release(a.on)
	return nil
}

// Many requests at a time open only as many connections as they need.
func TestStreams(t *testing.T) {
	p := &pool{}
	s := newStreams(p)
	request := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://broker", nil)
		require.NoError(t, err)
		return s.RoundTrip(r)
	}
	all := func(n int) (answers []*http.Response) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for range n {
			group.Go(func() {
				if a, err := request(); err == nil {
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, a)
				}
			})
		}
		group.Wait()
		return answers
	}
	watches := all(mostWatches)
	require.Len(t, watches, mostWatches)
	require.Equal(t, 3, p.dials)
	var short sync.WaitGroup
	for range pollers + writers {
		short.Go(func() {
			for range 50 {
				if a, err := request(); err == nil {
					_, _ = io.ReadAll(a.Body)
					_ = a.Body.Close()
				}
			}
		})
	}
	short.Wait()
	require.Equal(t, 3, p.dials, "there is room for short requests")

	p.down = true // an outage ends all requests
	require.Empty(t, all(1))
	for _, a := range watches {
		_, err := io.ReadAll(a.Body)
		require.Error(t, err)
		require.NoError(t, a.Body.Close(), "it has ended, and counts no more")
	}
	require.Equal(t, 0, s.active)
	require.Empty(t, s.on)
	p.down, p.connections, p.dials = false, nil, 0
	require.Len(t, all(mostWatches), mostWatches)
	require.Equal(t, 3, p.dials)
}

// A request that its caller ends says nothing about the connection; one that is lost does.
func TestStreamsLost(t *testing.T) {
	p := &pool{}
	s := newStreams(p)
	ask := func(ctx context.Context) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://broker", nil)
		require.NoError(t, err)
		a, err := s.RoundTrip(r)
		require.NoError(t, err)
		return a
	}
	read := func(a *http.Response) {
		_, err := io.ReadAll(a.Body)
		require.Error(t, err)
		require.NoError(t, a.Body.Close())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, lost, other := ask(ctx), ask(t.Context()), ask(t.Context())
	cancel()
	p.down = true
	read(ended)
	require.Len(t, s.on, 1)
	read(lost)
	require.Empty(t, s.on, "the next request goes alone")
	require.Equal(t, 1, s.active)
	read(other)
	require.Equal(t, 0, s.active)
}

// A request without an answer holds up no others, once it has a connection.
func TestStreamsSilent(t *testing.T) {
	s := newStreams(mute{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://broker", nil)
			_, _ = s.RoundTrip(r)
		})
	}
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.active == 3
	}, 30*time.Second, time.Millisecond)
	cancel()
	all.Wait()
	require.Equal(t, 0, s.active)
}

// mute is a client of an API server that does not answer.
type mute struct{}

func (mute) RoundTrip(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: &connection{}})
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A request does not wait longer than it wants to.
func TestStreamsGivesUp(t *testing.T) {
	s := newStreams(&pool{})
	s.alone <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://broker", nil)
	require.NoError(t, err)
	_, err = s.RoundTrip(r)
	require.ErrorIs(t, err, context.Canceled)
}
