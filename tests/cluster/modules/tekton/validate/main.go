// Tells what Tekton's admission webhook would say of objects, without a cluster.
//
// usage: tekton-validate FILE...
//
// Each FILE holds YAML or JSON, of any number of objects; `-` is standard input. Those of Tekton are decoded, given Tekton's
// defaults and validated as if they were created, all by Tekton's own API packages with its default feature flags; others are
// passed over. Standard output has a line for each object that is valid, standard error one for each thing that is wrong. The
// exit code is 1 if anything is wrong or cannot be read, and 2 for a wrong call.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"github.com/tektoncd/pipeline/pkg/apis/pipeline/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"
)

// object is what the webhook needs of a kind.
type object interface {
	metav1.Object
	apis.Defaultable
	apis.Validatable
}

// empty is a new object of the kind, or nil for kinds that are not known here.
func empty(kind schema.GroupVersionKind) object {
	switch kind {
	case v1.SchemeGroupVersion.WithKind("Pipeline"):
		return &v1.Pipeline{}
	case v1.SchemeGroupVersion.WithKind("PipelineRun"):
		return &v1.PipelineRun{}
	case v1.SchemeGroupVersion.WithKind("Task"):
		return &v1.Task{}
	case v1.SchemeGroupVersion.WithKind("TaskRun"):
		return &v1.TaskRun{}
	case v1beta1.SchemeGroupVersion.WithKind("CustomRun"):
		return &v1beta1.CustomRun{}
	}
	return nil
}

// validate tells what it has looked at, or "" for what is not Tekton's, and what is wrong with it. As the webhook does, it
// takes no field that Tekton does not know. A warning counts as wrong: the webhook lets it pass, but shows it to people.
func validate(ctx context.Context, document []byte) (string, error) {
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		return "what is no YAML", err
	}
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &head); err != nil {
		return "what is no object", err
	}
	kind := head.GroupVersionKind()
	if kind.Group != v1.SchemeGroupVersion.Group {
		return "", nil
	}
	name := fmt.Sprintf("%s %s", kind.Kind, head.Name)
	checked := empty(kind)
	if checked == nil {
		return name, fmt.Errorf("%s is no kind that is validated here", kind)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(checked); err != nil {
		return name, err
	}
	checked.SetDefaults(ctx)
	// Not returned as it is: a nil FieldError in an `error` is not nil.
	if wrong := checked.Validate(ctx); wrong != nil {
		return name, wrong
	}
	return name, nil
}

// validateAll goes through all documents of a file, and tells whether all of them are valid.
func validateAll(ctx context.Context, file string, reader io.Reader) bool {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(reader))
	allValid := true
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return allValid
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			return false
		}
		name, err := validate(ctx, document)
		switch {
		case err != nil:
			allValid = false
			// Tekton puts the fields first, and details on lines of their own.
			wrong := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
			fmt.Fprintf(os.Stderr, "%s: %s: %s\n", file, name, wrong)
		case name != "":
			fmt.Printf("%s: %s is valid\n", file, name)
		}
	}
}

func validateFile(ctx context.Context, file string) bool {
	if file == "-" {
		return validateAll(ctx, file, os.Stdin)
	}
	reader, err := os.Open(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	defer reader.Close()
	return validateAll(ctx, file, reader)
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tekton-validate FILE...")
		os.Exit(2)
	}
	ctx := apis.WithinCreate(context.Background())
	code := 0
	for _, file := range os.Args[1:] {
		if !validateFile(ctx, file) {
			code = 1
		}
	}
	os.Exit(code)
}
