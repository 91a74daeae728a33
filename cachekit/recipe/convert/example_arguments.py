"""Arguments of Transformers' example scripts, and what of a recipe stands for them.

Source: examples/pytorch of github.com/huggingface/transformers, 4.30 to 5.x: the classes `ModelArguments` and
`DataTrainingArguments` (`DataArguments`) of each script, and `training_args.py`.
"""

from __future__ import annotations

from typing import Any

SCRIPTS = {
    "run_glue": "text-classification",
    "run_classification": "text-classification",
    "run_text_classification": "text-classification",
    "run_xnli": "text-classification",
    "run_qa": "question-answering",
    "run_squad": "question-answering",
    "run_clm": "causal-lm",
    "run_mlm": "masked-lm",
    "run_mlm_wwm": "masked-lm",
    "run_ner": "token-classification",
    "run_swag": "multiple-choice",
    "run_summarization": "summarization",
    "run_translation": "translation",
    "run_image_classification": "image-classification",
}
# What the scripts take where nothing is said and a recipe takes something else.
DEFAULTS: dict[str, dict[str, Any]] = {
    "run_qa": {"max_seq_length": 384, "doc_stride": 128},
    "run_squad": {"max_seq_length": 384, "doc_stride": 128},
    "run_clm": {"max_seq_length": 1024},
    "run_mlm": {"max_seq_length": 512},
    "run_mlm_wwm": {"max_seq_length": 512},
    "run_summarization": {"max_seq_length": 1024, "max_target_length": 128},
    "run_translation": {"max_seq_length": 1024, "max_target_length": 128},
}
# Scripts that fill a batch up to its longest text where nothing is said, which would be a graph a length.
DYNAMIC = frozenset({"run_ner", "run_swag"})
# What a call that only compiles makes few of.
EXTRACTING = ("max_steps", "max_train_samples", "max_eval_samples")
# The model of a script that needs none named.
MODELS = {"run_image_classification": "google/vit-base-patch16-224-in21k"}
# How a script finds the columns of a file that somebody brings, and the fields that name them.
FIRST_COLUMNS = {
    "run_glue": ("sentence1 and sentence2, or the first two", "data.text_column and data.text_pair_column"),
    "run_summarization": ("the first two", "data.source_column and data.target_column"),
}
# Names of training arguments, where a recipe has another.
TRAINING = {
    "evaluation_strategy": "eval_strategy",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "num_warmup_steps": "warmup_steps",
    "max_train_steps": "max_steps",
    "lr": "learning_rate",
    "label_smoothing": "label_smoothing_factor",
}
_LENGTHS = {"max_length": "max_seq_length", "block_size": "max_seq_length", "max_source_length": "max_seq_length"}


def lengths(script: str) -> dict[str, str]:
    """Names of a script for the number of tokens; images have none."""
    return {} if script == "run_image_classification" else _LENGTHS


# Fields of `data` by script and argument.
DATA: dict[str, dict[str, str]] = {
    "run_classification": {
        "text_column_names": "text_column",
        "text_column_name": "text_column",
        "label_column_name": "label_column",
        "train_split_name": "train_split",
        "validation_split_name": "validation_split",
        "test_split_name": "test_split",
    },
    "run_ner": {"text_column_name": "tokens_column", "label_column_name": "label_column"},
    "run_clm": {"text_column_name": "text_column"},
    "run_mlm": {"text_column_name": "text_column"},
    "run_summarization": {
        "text_column": "source_column",
        "summary_column": "target_column",
        "source_prefix": "source_prefix",
    },
    "run_translation": {
        "source_lang": "source_lang",
        "target_lang": "target_lang",
        "source_prefix": "source_prefix",
    },
    "run_image_classification": {"image_column_name": "image_column", "label_column_name": "label_column"},
}
FILES = {
    "validation_file": ("validation_file", "eval_data_file", "predict_file", "dev_file"),
    "test_file": ("test_file",),
}
LORA = {
    "lora_r": "r",
    "lora_rank": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_bias": "bias",
    "lora_target_modules": "target_modules",
}
PARALLEL = {
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "zero_1": "zero_1",
    "use_zero1": "zero_1",
    "use_zero_1": "zero_1",
}
WORKERS = ("nproc_per_node", "num_processes", "num_gpus", "num_cores")
# Where nodes meet is said when training.
MEETING = frozenset(
    {
        "local_addr",
        "machine_rank",
        "main_process_ip",
        "main_process_port",
        "master_addr",
        "master_port",
        "node_rank",
        "rdzv_backend",
        "rdzv_conf",
        "rdzv_endpoint",
        "rdzv_id",
        "standalone",
        "num_parallel",
    }
)
# What a recipe does in any case.
NEEDLESS = frozenset({"do_train", "do_eval", "pad_to_max_length", "use_fast_tokenizer", "use_cpu", "no_cuda"})
UNKNOWN = "no field of a recipe stands for it"
_RUN = "how it is run, not what: no part of a recipe"
REASONS = {
    "do_predict": "test rows are judged where the recipe names them: data.test_split or data.test_file",
    "overwrite_output_dir": "a training begins anew, or goes on with --resume",
    "resume_from_checkpoint": "say it when training: cachekit train --resume auto",
    "warmup_ratio": "a recipe has training.warmup_steps",
    "cache_dir": "say HF_HOME in the environment",
    "overwrite_cache": _RUN,
    "preprocessing_num_workers": _RUN,
    "report_to": _RUN,
    "run_name": "the recipe's name",
    "logging_dir": _RUN,
    "logging_strategy": "training.logging_steps",
    "push_to_hub": "cachekit trains; `hf upload` publishes",
    "hub_model_id": "cachekit trains; `hf upload` publishes",
    "load_best_model_at_end": "the last model is kept",
    "metric_for_best_model": "the last model is kept",
    "greater_is_better": "the last model is kept",
    "predict_with_generate": "summaries and translations are always generated to be judged",
    "version_2_with_negative": "questions without an answer are known by their empty answers",
    "n_best_size": "post-processing has the script's own default, 20",
    "max_answer_length": "post-processing has the script's own default, 30",
    "label_all_tokens": "a word's first token has its label, the others none",
    "return_entity_level_metrics": "seqeval's overall figures are reported",
    "line_by_line": "texts are packed into blocks of one length: each other length is another compile",
    "streaming": "all rows are counted before training",
    "low_cpu_mem_usage": _RUN,
    "torch_dtype": "weights are kept in 32 bits, and training.bf16 computes in 16",
    "dtype": "weights are kept in 32 bits, and training.bf16 computes in 16",
    "fp16_full_eval": "evaluation computes as training does",
    "bf16_full_eval": "evaluation computes as training does",
    "deepspeed": "another way to split a model; parallel.zero_1 shards the optimizer's state",
    "use_fsdp": "another way to split a model; parallel.zero_1 shards the optimizer's state",
    "fsdp": "another way to split a model; parallel.zero_1 shards the optimizer's state",
    "train_dir": "data.path is a folder that holds train/ and validation/, with a folder a class in each",
    "validation_dir": "data.path is a folder that holds train/ and validation/, with a folder a class in each",
    "ignore_mismatched_sizes": "a head of another size is made anew in any case",
    "trust_remote_code": "only architectures of Transformers itself can be given a key",
    "num_beams": "evaluation takes the model's own generation settings",
    "val_max_target_length": "training.max_target_length is that of evaluation, too",
    "gradient_checkpointing_kwargs": "how, not whether",
    "dataloader_drop_last": "the last batch is filled up, so that every batch has one shape",
    "group_by_length": "every batch has one shape",
    "torch_compile": "cachekit has the compiler do it",
    "tf32": "reaches Nvidia's GPUs only",
    "use_slow_tokenizer": "the fast tokenizer is used",
    "checkpointing_steps": "training.save_strategy and save_steps",
    "with_tracking": _RUN,
    "disable_tqdm": _RUN,
    "remove_unused_columns": "columns that the task does not read are left out",
}
# Variables that a worker should have, by their beginnings.
ENVIRONMENT = ("NEURON_", "XLA_", "TORCHINDUCTOR_", "MALLOC_", "FI_", "NCCL_", "OMP_")
ENVIRONMENT_OURS = {
    "NEURON_RT_ROOT_COMM_ID": "where nodes meet is said when training: --master-addr",
    "NEURON_COMPILE_CACHE_URL": "cachekit says where the cache lies",
    "NEURON_EXTRACT_GRAPHS_ONLY": "`cachekit warm` does it",
    "NEURON_NUM_PARALLEL_COMPILE_WORKERS": "`cachekit warm` finds out how many fit",
}
