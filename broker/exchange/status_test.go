package exchange

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new exchange has read nothing yet: it is not healthy, and nothing is wrong with it.
func TestStatusAtFirst(t *testing.T) {
	e := New(Config{})
	require.EqualError(t, e.Healthy(), "still reading both sides")
	require.Empty(t, e.Status().Errors)
}

// The text of an error is the same at each attempt: it is reported whenever it changes.
func TestWithoutQuery(t *testing.T) {
	refused := errors.New("connection refused")
	request := &url.Error{Op: "Get", URL: "https://192.0.2.1:6443/apis?timeoutSeconds=403&watch=true", Err: refused}
	require.EqualError(t, withoutQuery(fmt.Errorf("watching: %w", request)), "192.0.2.1:6443: connection refused")
	request.Err = errors.New("dial tcp 192.0.2.1:6443: no route to host")
	require.Equal(t, request.Err, withoutQuery(request))
	request.Err = refused
	require.ErrorIs(t, withoutQuery(request), refused)
	require.Equal(t, refused, withoutQuery(refused))
}
