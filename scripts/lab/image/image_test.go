package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// readTar returns the files of an archive, and the mode and link of each.
func readTar(t *testing.T, b []byte) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	files := map[string][]byte{}
	headers := map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = content
		headers[h.Name] = h
	}
}

func blob[T any](t *testing.T, files map[string][]byte, d ocispec.Descriptor) (v T) {
	t.Helper()
	b := files["blobs/sha256/"+d.Digest.Encoded()]
	if int64(len(b)) != d.Size {
		t.Fatalf("%s has %d bytes, not %d", d.Digest, len(b), d.Size)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "tmp"), 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
		os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755), os.Symlink("usr/lib", filepath.Join(root, "lib")),
		os.WriteFile(filepath.Join(root, "usr/lib/x.so"), []byte("library"), 0o644),
		os.WriteFile(filepath.Join(dir, "app"), []byte("program"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	img := Image{
		Name:       "lab.local:5000/app:7",
		Layers:     []string{root, filepath.Join(dir, "app") + "=/usr/bin/app"},
		Entrypoint: []string{"/usr/bin/app"},
	}
	out := filepath.Join(dir, "out.tar")
	if err := Write(out, img); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := readTar(t, first)
	var index ocispec.Index
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if a := index.Manifests[0].Annotations; a["io.containerd.image.name"] != img.Name ||
		a[ocispec.AnnotationRefName] != "7" {
		t.Errorf("annotations %v", a)
	}
	manifest := blob[ocispec.Manifest](t, files, index.Manifests[0])
	config := blob[ocispec.Image](t, files, manifest.Config)
	if len(manifest.Layers) != 2 || len(config.RootFS.DiffIDs) != 2 || config.Config.Entrypoint[0] != "/usr/bin/app" {
		t.Fatalf("manifest %+v, config %+v", manifest, config)
	}

	_, base := readTar(t, files["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()])
	if h := base["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("tmp/ is %+v", h)
	}
	if h := base["lib"]; h == nil || h.Linkname != "usr/lib" {
		t.Errorf("lib is %+v", h)
	}
	top, headers := readTar(t, files["blobs/sha256/"+manifest.Layers[1].Digest.Encoded()])
	if string(top["usr/bin/app"]) != "program" || headers["usr/bin/app"].Mode != 0o755 || headers["usr/bin/"] == nil {
		t.Errorf("second layer %v", headers)
	}

	if err := Write(out, img); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same content gave other bytes")
	}
	if err := Write(out, Image{Name: "localhost:5000/app"}); err == nil {
		t.Error("a name without a tag was taken")
	}
}
