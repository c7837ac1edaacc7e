package exchange

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// served is an API server's HTTP/2, as Go has it: it counts the connections that are opened.
func served(t *testing.T, handle http.HandlerFunc) (client *http.Transport, url string, opened *atomic.Int32) {
	opened = &atomic.Int32{}
	server := httptest.NewUnstartedServer(handle)
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	client = server.Client().Transport.(*http.Transport).Clone()
	client.ForceAttemptHTTP2 = true
	t.Cleanup(client.CloseIdleConnections)
	return client, server.URL, opened
}

// watches makes requests at a time whose answers do not end, and returns these answers.
func watches(t *testing.T, s *streams, url string, n int) (answers []*http.Response) {
	var group sync.WaitGroup
	var mu sync.Mutex
	for range n {
		group.Go(func() {
			if a, err := ask(t.Context(), s, url+"/watch"); assert.NoError(t, err) {
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, a)
			}
		})
	}
	group.Wait()
	require.Len(t, answers, n)
	return answers
}

func ask(ctx context.Context, s *streams, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return s.RoundTrip(r)
}

// list reads an answer that ends.
func list(t *testing.T, s *streams, url string) {
	a, err := ask(t.Context(), s, url)
	if assert.NoError(t, err) {
		_, err := io.Copy(io.Discard, a.Body)
		assert.NoError(t, errors.Join(err, a.Body.Close()))
	}
}

// serve answers requests: watches do not end before the test does, and a connection takes no
// further requests after one for /drain.
func serve(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/drain":
			w.Header().Set("Connection", "close") // as --goaway-chance of an API server does
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/watch":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
		}
	}
}

// Many requests at a time open only as many connections as they need: also after an outage, and
// after the API server has drained a connection.
func TestStreams(t *testing.T) {
	client, url, opened := served(t, serve(t))
	s := newStreams(client)
	watches(t, s, url, mostWatches)
	require.EqualValues(t, 3, opened.Load())
	var short sync.WaitGroup
	for range pollers + writers {
		short.Go(func() {
			for range 50 {
				list(t, s, url)
			}
		})
	}
	short.Wait()
	require.EqualValues(t, 3, opened.Load(), "there is room for short requests")

	t.Log("one request is lost")
	_, err := ask(t.Context(), s, url+"/abort")
	require.Error(t, err)
	list(t, s, url)
	require.EqualValues(t, 3, opened.Load())

	t.Log("the connections are drained: watches go on there, and what follows needs one more")
	list(t, s, url+"/drain")
	for range 3 * (pollers + writers) {
		short.Go(func() { list(t, s, url) })
	}
	short.Wait()
	watches(t, s, url, streamsOfOne-pollers-writers)
	require.EqualValues(t, 4, opened.Load())
}

// An outage ends all requests. After it, as few connections are opened as at first.
func TestStreamsLost(t *testing.T) {
	client, url, opened := served(t, serve(t))
	var mu sync.Mutex
	var conns []net.Conn
	dial := client.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return c, err
	}
	s := newStreams(client)
	all := watches(t, s, url, mostWatches)
	require.EqualValues(t, 3, opened.Load())
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	_, err := io.Copy(io.Discard, all[0].Body)
	require.Error(t, err)
	for _, a := range all {
		_, err := io.Copy(io.Discard, a.Body)
		require.Error(t, err)
		require.NoError(t, a.Body.Close(), "it has ended, and counts no more")
	}
	watches(t, s, url, mostWatches)
	require.EqualValues(t, 6, opened.Load())
}

// A request without an answer holds up no others, once it has a connection.
func TestStreamsSilent(t *testing.T) {
	m := mute{asked: make(chan struct{})}
	s := newStreams(m)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { _, _ = ask(ctx, s, "https://broker") })
	}
	for range 3 {
		select {
		case <-m.asked:
		case <-ctx.Done():
			t.Fatal("a request waits for the answer to another one")
		}
	}
	cancel()
	all.Wait()
}

// mute is a client of an API server that does not answer.
type mute struct{ asked chan struct{} }

func (m mute) RoundTrip(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Conn: &net.TCPConn{}})
	m.asked <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A request does not wait longer than it wants to.
func TestStreamsGivesUp(t *testing.T) {
	s := newStreams(mute{})
	s.turns <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://broker", nil)
	require.NoError(t, err)
	_, err = s.RoundTrip(r)
	require.ErrorIs(t, err, context.Canceled)
}
