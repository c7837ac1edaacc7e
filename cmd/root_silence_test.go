package cmd

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// TestNoLogLines prints nothing that the libraries of Kubernetes log.
func TestNoLogLines(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	was := os.Stderr
	os.Stderr = write
	runIn(t, worlds()["well"], []string{"west"}, "show", "connections")
	klog.Error("E1122 memcache.go: couldn't get current server API group list")
	utilruntime.HandleError(errors.New("failed to list *v1alpha1.Submariner"))
	klog.Flush()
	os.Stderr = was
	require.NoError(t, write.Close())
	buffer := make([]byte, 1000)
	n, _ := read.Read(buffer)
	require.Empty(t, string(buffer[:n]))
}
