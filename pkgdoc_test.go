package main

import (
	"path"
	"strings"
	"testing"
)

// TestPackageComments requires one comment per package, which describes it.
func TestPackageComments(t *testing.T) {
	where := map[string][]string{} // files with a package comment, by folder
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		where[dir] = append(where[dir], []string{}...)
		if s.file.Doc == nil {
			continue
		}
		where[dir] = append(where[dir], s.path)
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(s.file.Doc.Text(), want) {
			t.Errorf("%s: the package comment should begin with %q", s.path, want)
		}
	}
	for dir, files := range where {
		if len(files) != 1 {
			t.Errorf("%s: want one package comment, found %d: %v", dir, len(files), files)
		}
	}
}
