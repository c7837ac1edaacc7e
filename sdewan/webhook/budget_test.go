package webhook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clients that never finish large requests take a limited part of the memory, and keep no other
// address waiting.
func TestHostileBodies(t *testing.T) {
	b := newBudget()
	server := httptest.NewServer(b.bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("done"))
	})))
	defer server.Close()
	held := func() int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.all
	}
	for range 50 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /validate-permission HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{",
			maxBody-1)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return held() == 2*(maxBody-1) }, 10*time.Second, time.Millisecond)

	from := func(address string) (*http.Response, error) {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		client := http.Client{
			Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
					return dialer.DialContext(ctx, network, to)
				},
			},
		}
		return client.Post(server.URL, "application/json", strings.NewReader(strings.Repeat("x", 3<<20)))
	}
	mine, err := from("127.0.0.1")
	if err == nil { // else the connection was closed while the body was sent
		require.Equal(t, http.StatusServiceUnavailable, mine.StatusCode)
		_ = mine.Body.Close()
	}
	other, err := from("127.0.0.2")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, other.StatusCode)
	_ = other.Body.Close()

	require.Eventually(t, func() bool { return held() == 0 }, 30*time.Second, 10*time.Millisecond,
		"a body takes no longer than readTime")
	require.Empty(t, b.of)
}
