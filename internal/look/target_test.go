package look_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/look"
)

// TestClock reads the time off an API server's answers.
func TestClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", now.Add(time.Hour).Format(http.TimeFormat))
	}))
	defer server.Close()
	clock := &look.Clock{Local: func() time.Time { return now }}
	require.Equal(t, now, clock.Now())
	resp, err := (&http.Client{Transport: clock.Wrap(http.DefaultTransport)}).Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, now.Add(time.Hour), clock.Now())
}
