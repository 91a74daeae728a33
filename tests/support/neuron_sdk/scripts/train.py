"""Fine-tunes BERT with NeuronTrainer on a data set that was tokenized and saved before.

In our words what the tutorial "Fine-tune BERT for Text Classification on AWS Trainium" (philschmid.de, 6 June 2023) has
its readers run. It knows nothing of cachekit. The evaluation is left out, which optimum-neuron 0.4 refuses.
"""

import argparse

from datasets import load_from_disk
from optimum.neuron import NeuronTrainer as Trainer
from optimum.neuron import NeuronTrainingArguments as TrainingArguments
from transformers import AutoModelForSequenceClassification, set_seed


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_id", default="bert-base-uncased")
    parser.add_argument("--dataset_path", default="lm_dataset")
    parser.add_argument("--output_dir", default="emotion")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--bf16", type=lambda said: said.lower() == "true", default=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def training_function(args):
    set_seed(args.seed)
    train_dataset = load_from_disk(f"{args.dataset_path}/train")
    names = train_dataset.features["labels"].names
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model_id,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    training_args = TrainingArguments(
        output_dir=args.output_dir,
        learning_rate=args.lr,
        per_device_train_batch_size=args.per_device_train_batch_size,
        num_train_epochs=args.epochs,
        bf16=args.bf16,
        dataloader_drop_last=True,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(model=model, args=training_args, train_dataset=train_dataset)
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    training_function(parse_args())
