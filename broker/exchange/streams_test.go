package exchange

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pool is Go's client of an API server: a request for which there is no room opens a connection of its own.
type pool struct {
	sync.Mutex
	active, connections, dials int
	down                       bool
}

func (p *pool) RoundTrip(*http.Request) (*http.Response, error) {
	p.Lock()
	dial := p.active >= p.connections*streamsOfOne
	p.active++
	if dial {
		p.dials++
	}
	down := p.down
	p.Unlock()
	if down {
		p.release()
		return nil, errors.New("down")
	}
	if dial {
		time.Sleep(5 * time.Millisecond)
		p.Lock()
		if p.active > p.connections*streamsOfOne { // else another one is there by now
			p.connections++
		}
		p.Unlock()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: &answer{Reader: strings.NewReader("x"), pool: p}}, nil
}

func (p *pool) release() {
	p.Lock()
	defer p.Unlock()
	p.active--
}

type answer struct {
	io.Reader
	pool *pool
}

func (a *answer) Close() error {
	a.pool.release()
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
	watches := all(2*streamsOfOne + 50)
	require.Len(t, watches, 2*streamsOfOne+50)
	require.Equal(t, 3, p.dials)
	for range 10 {
		for _, a := range all(40) {
			_, err := io.ReadAll(a.Body)
			require.NoError(t, err)
			require.NoError(t, a.Body.Close())
		}
	}
	require.Equal(t, 3, p.dials)

	p.down = true // an outage ends all requests
	require.Empty(t, all(1))
	for _, a := range watches {
		require.NoError(t, a.Body.Close())
		require.NoError(t, a.Body.Close(), "closing twice counts once")
		p.active++
	}
	p.down, p.active, p.connections, p.dials = false, 0, 0, 0
	require.Equal(t, 0, s.active)
	require.Len(t, all(2*streamsOfOne+50), 2*streamsOfOne+50)
	require.Equal(t, 3, p.dials)
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
