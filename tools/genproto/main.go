// Command genproto compiles a .proto file and runs the Go generators on it,
// without protoc. The generators are the tools of this module, at the versions
// its go.mod pins.
//
//	go -C tools run ./genproto ../plugin/proto .. github.com/kconsume/kconsume handler.proto
//
// The arguments are the folder of the .proto files, the root of the module that
// the code is for, that module's path, and the files.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: genproto PROTO-DIR MODULE-DIR MODULE-PATH FILE.proto...")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "genproto:", err)
		os.Exit(1)
	}
}

func run(dir, out, module string, names []string) error {
	compiler := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return fmt.Errorf("compile %v in %s: %w", names, dir, err)
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("module=" + module),
		ProtoFile:      withImports(files),
	})
	if err != nil {
		return fmt.Errorf("encode generator request: %w", err)
	}
	for _, tool := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(tool, request, out); err != nil {
			return err
		}
	}
	return nil
}

// withImports lists the files with all they import, each after its imports, as
// generators want them.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		// A compiled file's own descriptor has the comments, which protodesc drops.
		if d, ok := f.(interface {
			FileDescriptorProto() *descriptorpb.FileDescriptorProto
		}); ok {
			all = append(all, d.FileDescriptorProto())
			return
		}
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	return all
}

// generate runs one generator and writes what it answers below out.
func generate(tool string, request []byte, out string) error {
	cmd := exec.Command("go", "tool", tool)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", tool, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return fmt.Errorf("decode answer of %s: %w", tool, err)
	}
	if response.Error != nil {
		return fmt.Errorf("run %s: %w", tool, errors.New(response.GetError()))
	}
	for _, f := range response.File {
		path := filepath.Join(out, f.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create folder of %s: %w", f.GetName(), err)
		}
		if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", f.GetName(), err)
		}
	}
	return nil
}
