package v1alpha1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportedServicesPage(t *testing.T) {
	for n := range MaxExportPages {
		got, ok := ExportedServicesPage("east", ExportedServicesName("east", n))
		require.True(t, ok)
		require.Equal(t, n, got)
	}
	for _, name := range []string{
		"", "east", "east-services-", "east-services-64", "east-services-00", "east-services-01", "east-services-+1",
		"east-services--1", "east-services-1x", "east-services-1-services-2", "west-services-1",
		"east-services-99999999999999999999",
	} {
		_, ok := ExportedServicesPage("east", name)
		require.False(t, ok, name)
	}
}
